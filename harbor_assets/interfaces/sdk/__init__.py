"""The Python interface. Its public door is `harbor_assets.sdk`, which loads each name when it is first used."""
