/*
 * A connection to the outside is cut in a copy: the agent connects the socket to a listener of its own, which resets it.
 * The listener has an address that nothing else uses. By that address cloche-dump recognizes a cut socket whose process
 * did not notice yet, since reading the pending error (SO_ERROR) would clear it.
 */
#pragma once

#define SOCKET_CUT_PEER 0x7f525354U /* 127.82.83.84, in the host's order */
