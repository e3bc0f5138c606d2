-- All at once, before anything else, and in the order in which workers take them.
LOCK TABLE holdfast.jobs, holdfast.finished, holdfast.stages IN ACCESS EXCLUSIVE MODE;
