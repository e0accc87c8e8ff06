"""`python -m kafkatap.spark CAPTURES -o DIR`: the command `kafkatap spark`, also as an application of spark-submit.

`--path` alone prints the path of this file: `spark-submit "$(python -m kafkatap.spark --path)" CAPTURES -o DIR`.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if sys.argv[1:] == ["--path"]:
        print(__file__)
        sys.exit()
    from kafkatap.__main__ import main  # absolute: spark-submit runs this file as a script

    sys.exit(main(["spark", *sys.argv[1:]]))
