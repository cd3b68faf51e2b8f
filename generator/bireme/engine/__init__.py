"""Dense ONNX → TensorRT plan, on the GPU that will serve it; needs neither the spec nor TensorFlow.

::

    network           config.pbtxt + model.onnx of a repository -> what has to be built
    profile           the shapes that the plan must take, and which one its kernels are tuned for
    tensorrt_builder  builds it through the Python package `tensorrt`
    trtexec           builds it through the command `trtexec`
    layers            what TensorRT made of the network: layers, precision, kernels, memory
    selfcheck         sets every shape, runs some of them
    build_engine      puts these in order, writes plan, passport and report together
"""
