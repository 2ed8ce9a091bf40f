"""`python -m harbor_assets`: the command line, also where its script is not on the path."""

from harbor_assets.interfaces.cli.main import main

if __name__ == "__main__":
    main()
