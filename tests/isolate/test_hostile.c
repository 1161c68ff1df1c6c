#include "kit.h"
int main(void) { return 0; }
