"""Random schedules of faults on real processes under traffic of foreign clients, with a checker."""
