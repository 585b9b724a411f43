"""Go by its definition, in plain Python: colors of points, flood fill, and all positions so far."""

from __future__ import annotations

from dataclasses import dataclass, field

Point = tuple[int, int]
Position = tuple[tuple[int, ...], ...]


@dataclass
class PlainGame:
    """[rows][cols] 0 empty, 1 black, 2 white; a move is a point or None, the pass."""

    rows: int
    cols: int
    ko: str
    suicide: bool
    grid: Position = ()
    turn: int = 1
    passes: int = 0
    seen: list[tuple[Position, int]] = field(default_factory=list)
    previous: Position | None = None

    def __post_init__(self) -> None:
        self.grid = self.grid or ((0,) * self.cols,) * self.rows
        self.seen = self.seen or [(self.grid, self.turn)]

    def near(self, point: Point) -> list[Point]:
        row, col = point
        sides = [(row - 1, col), (row + 1, col), (row, col - 1), (row, col + 1)]
        return [(r, c) for r, c in sides if 0 <= r < self.rows and 0 <= c < self.cols]

    def region(self, grid: Position, start: Point) -> tuple[set[Point], set[int]]:
        """Connected points of one color, and the colors around them."""
        color, found, waiting, around = grid[start[0]][start[1]], {start}, [start], set()
        while waiting:
            for point in self.near(waiting.pop()):
                other = grid[point[0]][point[1]]
                if other == color and point not in found:
                    found.add(point)
                    waiting.append(point)
                elif other != color:
                    around.add(other)
        return found, around

    def after(self, point: Point) -> Position:
        """The position after a stone: opponents without liberties go, then the own chain."""
        rows = [list(row) for row in self.grid]
        rows[point[0]][point[1]] = self.turn
        for color in (3 - self.turn, self.turn):
            grid = tuple(map(tuple, rows))
            for near in [*self.near(point), point]:
                if grid[near[0]][near[1]] == color:
                    chain, around = self.region(grid, near)
                    if 0 not in around:
                        for row, col in chain:
                            rows[row][col] = 0
        return tuple(map(tuple, rows))

    def legal(self) -> list[Point]:
        return [
            (row, col)
            for row in range(self.rows)
            for col in range(self.cols)
            if self.grid[row][col] == 0 and self._allowed((row, col))
        ]

    def _allowed(self, point: Point) -> bool:
        grid = self.after(point)
        if grid[point[0]][point[1]] == 0 and not self.suicide:
            return False
        if self.ko == "positional":
            return all(grid != before for before, _ in self.seen)
        if self.ko == "situational":
            return (grid, 3 - self.turn) not in self.seen
        # Not back to the position before the opponent's move; a suicide of one stone changes nothing.
        return grid != self.previous or grid == self.grid

    def play(self, point: Point | None) -> PlainGame:
        grid = self.grid if point is None else self.after(point)
        return PlainGame(
            self.rows,
            self.cols,
            self.ko,
            self.suicide,
            grid,
            3 - self.turn,
            self.passes + 1 if point is None else 0,
            [*self.seen, (grid, 3 - self.turn)],
            None if point is None else self.grid,
        )

    def score(self) -> int:
        total = 0
        for row in range(self.rows):
            for col in range(self.cols):
                color = self.grid[row][col]
                around = {color} if color else self.region(self.grid, (row, col))[1]
                total += (around == {1}) - (around == {2})
        return total

    def perft(self, depth: int) -> int:
        if depth == 0:
            return 1
        if self.passes == 2:
            return 0
        return sum(self.play(move).perft(depth - 1) for move in [*self.legal(), None])
