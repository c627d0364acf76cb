from seqloom.cli.main import main

main()
