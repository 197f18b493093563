"""IOS as published: the paper's networks, as task graphs and ONNX files, and the price of their stages on a GPU.

    networks/*.json --schema--> Network --tasks, gpu--> Problem, Contention
                                        --onnx_file--> a model that a GPU runs --stage_times--> measured stages

The search itself is the product's (`dsa_sched/placement/ios/`).
"""
