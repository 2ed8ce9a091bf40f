import dagster as dg

from harbor_assets.assets.leaderboard import leaderboard
from harbor_assets.domain.errors import Broken
from harbor_assets.engine.ranking import Ranked


class Rankings:
    def __init__(self, done: Ranked | Broken) -> None:
        self._done = done

    def rebuild(self) -> Ranked:
        if isinstance(self._done, Broken):
            raise self._done
        return self._done


def made(done: Ranked | Broken) -> dg.ExecuteInProcessResult:
    return dg.materialize([leaderboard], resources={"rankings": Rankings(done)}, raise_on_error=False)


def test_materialising_makes_it_afresh_and_says_what_is_missing():
    done = Ranked(3, (("run-1", "no bundle\n\x1b[2J"),), runs=3)
    (event,) = made(done).asset_materializations_for_node("leaderboard")
    assert event.metadata["dagster/row_count"].value == 3
    assert event.metadata["not_written"].value == 1
    assert event.metadata["reasons"].value == {"run-1": r"no bundle\n\x1b[2J"}


def test_it_comes_of_the_bundles():
    (dep,) = leaderboard.specs_by_key[leaderboard.key].deps
    assert dep.asset_key == dg.AssetKey("merged_bundle")
    assert leaderboard.op.pool == "duckdb_writer"


def test_a_leaderboard_that_cannot_be_written_fails_the_materialisation():
    assert not made(Broken("no space")).success
