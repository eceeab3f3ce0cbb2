//! Rights at random.
