"""One file for each codemod: a class that declares its rules, its examples and its page. The registry looks in here."""
