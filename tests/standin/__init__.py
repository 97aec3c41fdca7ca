"""A web server on the loopback that stands in for the documentation sites, and misbehaves on request."""
