"""Help for those who use Holdfast inside a framework. What is here builds on the public names, and no more."""
