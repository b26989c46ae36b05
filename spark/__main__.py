"""`python -m spark`, and the file that `spark-submit` is given."""

from spark.main import main

if __name__ == "__main__":
    main()
