"""The search for the fastest conversion that keeps an accuracy goal. No TensorFlow here, except in `measure`, which runs in a child."""
