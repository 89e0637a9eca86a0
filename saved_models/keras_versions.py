"""What Keras 2 (TensorFlow 2.14 and 2.15) and Keras 3 (2.16 and 2.17) call differently, for the sample models and tests."""


def major() -> int:
    """The major version of the Keras behind tf.keras."""
    import keras

    return int(keras.__version__.split(".")[0])


def forget_names():
    """Start the numbers of layers without a name anew: Keras counts them through the whole process."""
    import tensorflow as tf

    (tf.keras.utils.clear_session if major() > 2 else tf.keras.backend.reset_uids)()


def variables(model):
    """The tf.Variables of a model. Keras 3 wraps them, and a tf.Module that holds the wrappers saves no variables that a session finds."""
    return [one.value for one in model.variables] if major() > 2 else list(model.variables)


def residual_stage(x, channels, blocks, name, stride=2):
    """A stage of Keras' ResNet."""
    from keras.src.applications import resnet

    if major() > 2:
        return resnet.stack_residual_blocks_v1(x, channels, blocks, stride1=stride, name=name)
    return resnet.stack1(x, channels, blocks, stride1=stride, name=name)


def resnet(stages, image, classes, name):
    """A ResNet of these stages, without weights. Args: stages: takes and returns a tensor."""
    from keras.src.applications import resnet as made

    named = {"name": name} if major() > 2 else {"model_name": name}
    return made.ResNet(
        stages,
        preact=False,
        use_bias=True,
        weights=None,
        input_tensor=image,
        classes=classes,
        classifier_activation=None,
        **named,
    )


def readers(layer):
    """The layers that read a layer's output."""
    if major() > 2:
        return [node.operation for node in layer._outbound_nodes]
    return [node.outbound_layer for node in layer.outbound_nodes]


def maker(tensor):
    """The layer that gives a tensor of a model."""
    history = tensor._keras_history
    return history.operation if major() > 2 else history.layer
