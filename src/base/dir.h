/* Reading a folder by its descriptor. */
#pragma once
#include <dirent.h>

/* Opens the folder @dir once more, for readdir(). NULL: errno. */
DIR *dir_list(int dir);
