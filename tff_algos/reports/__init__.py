"""What a run did: pictures, an index page and a table, from its files alone."""
