"""A program as users write it, for the checker of types."""

import numpy as np

import slabfs


def main(place: str) -> None:
    """Writes and reads an array."""
    with slabfs.connect(place) as session:
        run: slabfs.Container = session.require_container("run1")
        temp: slabfs.Array = run.create_array("temp", shape=(16, 16), dtype="f4", attrs={"step": 3})
        temp[0:2, 0:3] = np.ones((2, 3))
        block: np.ndarray = temp[0:2, 0:3]
        shape: tuple[int, ...] = temp.shape
        transfers = [temp.read_transfer(index=i) for i in range(shape[0])]
        slabfs.start_all(transfers)
        rows = [transfer.wait() for transfer in transfers]
        found = session.find("step < 10")
        print(block.sum(), len(rows), [one.path for one in found], temp.attrs["step"])


if __name__ == "__main__":
    main("unix:slabfs.sock")
