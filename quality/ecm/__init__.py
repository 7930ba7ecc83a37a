"""The ECM-sketch: cells, the paper's tables 3 and 4 and figures 5 to 7 again, and its promises."""
