/*
 * `cloche quarantine ls | show ID | rm ID…`: what a daemon did not know and put aside, by root and without a daemon. A database
 * that was not the right one is in the data folder's "quarantine", a layer in that of the layers' folder.
 */
#pragma once

int quarantine_main(int argc, char **argv);
