#include "cli/command.h"

int main(int argc, char** argv) { return lockstep::cli::run(argc, argv); }
