"""Small populations and models that the tests share."""
