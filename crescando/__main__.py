"""``python -m crescando``: the same as the command ``crescando``."""

from crescando.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
