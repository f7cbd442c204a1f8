"""Playing episodes: environments and a policy go in, whole trajectories come out. No module here loads torch."""
