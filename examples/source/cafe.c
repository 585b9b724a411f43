/* Café */
int open(void) { return 1; }
