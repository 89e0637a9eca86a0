"""`tftrt convert --backend=tensorrt`: a model as a plan of TensorRT itself, built in a child that may die, and written whole with its
passport."""
