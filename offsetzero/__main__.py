"""`python -m offsetzero` is the command `offsetzero`."""

from offsetzero.cli.app import main

if __name__ == "__main__":
    main()
