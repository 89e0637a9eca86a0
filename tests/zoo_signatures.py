"""The signatures of the sample models."""

I32, I64, F32, STR = "int32", "int64", "float32", "string"
_VISITOR = {"user": (STR, [None]), "user_features": (F32, [None, 8]), "visits": (I32, [None, 4])}
_WARE = {"item": (STR, [None]), "price_cents": (I32, [None])}
# {model: {signature: (inputs, outputs)}}, each {name: (dtype, shape)}, for the sizes of SMALL.
SIGNATURES = {
    "digits_cnn": {"serving_default": ({"image": (F32, [None, 8, 8, 1])}, {"probabilities": (F32, [None, 10])})},
    "resnet50": {"serving_default": ({"image": (F32, [None, 64, 64, 3])}, {"logits": (F32, [None, 100])})},
    "mobilenet_v2": {"serving_default": ({"image": (F32, [None, 64, 64, 3])}, {"logits": (F32, [None, 100])})},
    "spread_cnn": {"serving_default": ({"image": (F32, [None, 8, 8, 1])}, {"probabilities": (F32, [None, 10])})},
    "bert_encoder": {
        "serving_default": (
            {"input_ids": (I32, [None, None]), "input_mask": (I32, [None, None])},
            {"sequence_output": (F32, [None, None, 64]), "pooled_output": (F32, [None, 64])},
        )
    },
    "lstm_tagger": {"serving_default": ({"tokens": (I32, [None, None])}, {"tag_logits": (F32, [None, None, 12])})},
    "dynamic_segmenter": {
        "serving_default": ({"image": (F32, [None, None, None, 3])}, {"class_logits": (F32, [None, None, None, 6])})
    },
    "ranker": {
        "serving_default": (
            {**_VISITOR, **_WARE},
            {
                name: (dtype, [None])
                for name, dtype in {
                    "score": F32,
                    "expected_revenue": F32,
                    "total_visits": I64,
                    "item_index": I64,
                }.items()
            },
        ),
        "user_embedding": (_VISITOR, {"user_embedding": (F32, [None, 32]), "user_index": (I64, [None])}),
        "item_embedding": (_WARE, {"item_embedding": (F32, [None, 32]), "item_index": (I64, [None])}),
    },
    "tf1_export": {
        "serving_default": (
            {"image": (F32, [None, 16, 16, 3]), "colour": (STR, [None])},
            {"logits": (F32, [None, 7]), "colour_index": (I64, [None])},
        )
    },
}
