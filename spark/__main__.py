"""`python -m spark`, and the file to pass to `spark-submit`."""

from spark.main import main

if __name__ == "__main__":
    main()
