"""The workbook's own program: finds, runs, compares, judges and remembers scripts."""
