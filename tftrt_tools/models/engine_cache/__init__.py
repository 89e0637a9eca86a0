"""Built engines kept on disk between runs: `key` says when two engines are the same, `store` keeps them. No TensorFlow here."""
