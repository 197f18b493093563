"""Measuring on a GPU: what is built here goes there as one pack, and steps run there with Python and NumPy.

here    pack.py      networks -> kernels, lists of launches, graphs, plans, seeds of weights     build/gpu-pack
        predict.py   networks -> floors of every kernel                              results/gpu_predicted.json
there   steps.py     right, rates, kernels, networks, streams, sanitizer                 results/gpu_*.json
        steps.py --rehearse: the same on the executor of PTX, without a GPU
"""
