/*
 * A connection to the outside is cut in a copy: the agent connects the socket to a listener of its own, which resets it. The listener has
 * an address that nothing else uses. So cloche-dump knows a socket that was cut and whose process did not notice yet: nobody can ask
 * for the error that waits there without taking it away.
 */
#pragma once

#define SOCKET_CUT_PEER 0x7f525354U /* 127.82.83.84, in the host's order */
