"""Faults, tried many times: kills, full disks, damaged files, readers beside a writer."""
