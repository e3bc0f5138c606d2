"""The engine: it moves data between the decisions in `core` and the world behind `ports`."""
