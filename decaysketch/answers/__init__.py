"""From a weighted sample to answers with intervals, whatever family the sample was drawn from."""
