"""A two-tower ranker with seeded random weights: strings, vocabulary files, large integers, several signatures.

N rows each; strings are trimmed and lower-cased, and looked up in a vocabulary file or hashed into one of four spare rows.

    user_embedding: user string (N), user_features float32 (N, 8), visits int32 (N, 4)
        -> user_embedding float32 (N, dimension), user_index int64 (N)
    item_embedding: item string (N), price_cents int32 (N)
        -> item_embedding float32 (N, dimension), item_index int64 (N)
    serving_default: all five inputs
        -> score float32 (N), expected_revenue float32 (N), total_visits int64 (N), item_index int64 (N)

visits and price_cents are cast to float32 and matter digit for digit: expected_revenue is a probability times
price_cents, and float16 knows neither 2049 nor 100000. The cast amounts only meet ops that TF-TRT 2.14 has no converter
for (Log1p, MulNoNan), so they never enter an engine, where float16 would have no room for them: only a conversion that
rewrites the casts themselves makes these outputs wrong.

The loaded object also keeps `prep`: string (N) -> trimmed, lower-case string (N).
"""

import pathlib
import tempfile

USERS, ITEMS, SPARE = 200, 300, 4
LARGE = (2049, 100000)


def build(output_dir, *, dimension=32, seed=0):
    """Write the SavedModel. Args: dimension: of the embeddings."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:  # saving copies the vocabularies to the model's assets
        ranker = _ranker(pathlib.Path(folder), dimension, seed)
        signatures = {
            "serving_default": ranker.rank,
            "user_embedding": ranker.embed_user,
            "item_embedding": ranker.embed_item,
        }
        tf.saved_model.save(ranker, str(output_dir), signatures=signatures)


def sample_inputs(rng, batch):
    """Known and unknown names in mixed spelling; counts and prices up to a million, 2049 and 100000 among them."""
    import numpy as np

    def names(kind, known):
        picked = [f"{kind}_{index}" for index in rng.integers(known + known // 10, size=batch)]
        spellings = rng.integers(3, size=batch)
        return np.array(
            [(name, name.upper(), f"  {name} ")[way] for name, way in zip(picked, spellings, strict=True)], object
        )

    def large(shape):
        values = np.rint(10.0 ** rng.uniform(0.0, 6.0, size=shape)).astype(np.int32)
        values.flat[: len(LARGE)] = LARGE[: values.size]
        return values

    user = {
        "user": names("user", USERS),
        "user_features": rng.normal(size=(batch, 8)).astype(np.float32),
        "visits": large((batch, 4)),
    }
    item = {"item": names("item", ITEMS), "price_cents": large((batch,))}
    return {"serving_default": {**user, **item}, "user_embedding": user, "item_embedding": item}


def _vocabulary(path, kind, size):
    import tensorflow as tf

    path.write_text("".join(f"{kind}_{index}\n" for index in range(size)))
    lines = tf.lookup.TextFileInitializer(
        str(path), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER
    )
    return tf.lookup.StaticVocabularyTable(lines, SPARE)


def _ranker(folder, dimension, seed):
    import numpy as np
    import tensorflow as tf

    rng = np.random.default_rng(seed)
    user = tf.TensorSpec((None,), tf.string, name="user")
    features = tf.TensorSpec((None, 8), tf.float32, name="user_features")
    visits = tf.TensorSpec((None, 4), tf.int32, name="visits")
    item = tf.TensorSpec((None,), tf.string, name="item")
    price = tf.TensorSpec((None,), tf.int32, name="price_cents")

    class Ranker(tf.Module):
        def __init__(self):
            super().__init__(name="ranker")
            self.user_table = _vocabulary(folder / "users.txt", "user", USERS)
            self.item_table = _vocabulary(folder / "items.txt", "item", ITEMS)
            self.user_rows = tf.Variable(rng.normal(size=(USERS + SPARE, 32)).astype(np.float32), name="user_rows")
            self.item_rows = tf.Variable(rng.normal(size=(ITEMS + SPARE, 32)).astype(np.float32), name="item_rows")
            self.user_tower = [
                self.dense("user1", 32 + 8 + 4, 64),
                self.dense("user2", 64, 64),
                self.dense("user3", 64, dimension),
            ]
            self.item_tower = [
                self.dense("item1", 32 + 1, 64),
                self.dense("item2", 64, 64),
                self.dense("item3", 64, dimension),
            ]

        def dense(self, name, fan_in, fan_out):
            kernel = rng.normal(scale=(2.0 / fan_in) ** 0.5, size=(fan_in, fan_out)).astype(np.float32)
            bias = rng.normal(scale=0.1, size=fan_out).astype(np.float32)
            return tf.Variable(kernel, name=f"{name}/kernel"), tf.Variable(bias, name=f"{name}/bias")

        @tf.function(input_signature=[tf.TensorSpec((None,), tf.string, name="names")])
        def prep(self, names):
            return tf.strings.lower(tf.strings.strip(names))

        @tf.function(input_signature=[user, features, visits])
        def embed_user(self, user, user_features, visits):
            index = self.user_table.lookup(self.prep(user))
            amounts = tf.math.log1p(tf.cast(visits, tf.float32)) / 5.0
            x = tf.concat([tf.gather(self.user_rows, index), user_features, amounts], axis=1)
            return {"user_embedding": _tower(x, self.user_tower), "user_index": index}

        @tf.function(input_signature=[item, price])
        def embed_item(self, item, price_cents):
            index = self.item_table.lookup(self.prep(item))
            amount = tf.math.log1p(tf.cast(price_cents, tf.float32))[:, tf.newaxis] / 5.0
            x = tf.concat([tf.gather(self.item_rows, index), amount], axis=1)
            return {"item_embedding": _tower(x, self.item_tower), "item_index": index}

        @tf.function(input_signature=[user, features, visits, item, price])
        def rank(self, user, user_features, visits, item, price_cents):
            users = self.embed_user(user, user_features, visits)["user_embedding"]
            items = self.embed_item(item, price_cents)
            score = tf.reduce_sum(users * items["item_embedding"], axis=1) * 4.0
            return {
                "score": score,
                "expected_revenue": tf.math.multiply_no_nan(tf.cast(price_cents, tf.float32), tf.sigmoid(score)),
                "total_visits": tf.reduce_sum(tf.cast(visits, tf.int64), axis=1),
                "item_index": items["item_index"],
            }

    return Ranker()


def _tower(x, layers):
    """Two hidden layers and a row of length one. Args: x: (N, features). Returns: (N, dimension)."""
    import tensorflow as tf

    for kernel, bias in layers[:-1]:
        x = tf.nn.relu(tf.matmul(x, kernel) + bias)
    kernel, bias = layers[-1]
    x = tf.matmul(x, kernel) + bias
    return x * tf.math.rsqrt(tf.reduce_sum(tf.square(x), axis=1, keepdims=True) + 1e-6)
