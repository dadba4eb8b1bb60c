"""Growth of cost with the number of clients and of examples."""
