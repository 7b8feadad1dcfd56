/* Functions that have no safe use here. Included last by every .c file through base/base.h. */
#pragma once
#pragma GCC poison strcpy strcat sprintf vsprintf strtok atoi atol atoll gets system popen tmpnam mktemp
