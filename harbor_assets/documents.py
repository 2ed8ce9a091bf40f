"""JSON and YAML read strictly: no key twice (the last would win without a word), no NaN, nothing but data."""

import json
import math
from typing import Any, NoReturn


def read_json(text: str) -> Any:
    """The value of a JSON document. Raises `ValueError` with what is wrong and where."""
    return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number)


def read_yaml(text: str) -> Any:
    """The value of a YAML document. Raises `ValueError` with what is wrong and where."""
    import yaml

    class Strict(yaml.SafeLoader):
        pass

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        seen: set[Any] = set()
        for key, _ in node.value:
            name = loader.construct_object(key)
            if name in seen:
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} stands twice", key.start_mark)
            seen.add(name)
        return loader.construct_mapping(node, deep=True)

    def number(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> float:
        value = loader.construct_yaml_float(node)
        if not math.isfinite(value):
            raise yaml.constructor.ConstructorError(None, None, f"{node.value} is no finite number", node.start_mark)
        return value

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    Strict.add_constructor("tag:yaml.org,2002:float", number)
    try:
        return yaml.load(text, Strict)  # noqa: S506 a subclass of SafeLoader
    except (yaml.YAMLError, TypeError, RecursionError) as error:  # TypeError: a key that is a list
        raise ValueError(" ".join(str(error).split())) from error


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(key for at, (key, _) in enumerate(pairs) if key in dict(pairs[:at]))
        raise ValueError(f"the key '{twice}' stands twice in one object")
    return found


def _no_number(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")
