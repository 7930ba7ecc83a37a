"""The paper's figures 4.2 to 4.8 again, and the two estimators side by side.

``python -m quality`` runs them. What is measured is apart from how it is shown:

- ``decays``, ``sketches``: what is compared, with one face
- ``accuracy``, ``space``, ``speed``, ``estimators``: the measurements, each trial by its seed
- ``claims``: figures with standard errors, and verdicts
- ``*_pages``, ``report``, ``draw``: tables, claims and pictures
- ``pool``: the processes; ``catalogue``: which figure needs which measurement
"""
