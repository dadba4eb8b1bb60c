"""What a run did, and what a dataset holds: pictures, pages, from files alone."""
