"""Hostile bytes for what listens: ``make fuzz``, and targets for atheris; the tests run a small share."""
