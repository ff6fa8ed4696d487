# test_setupplan.mk
#
# Made of sources of pg_pcache, beside what it shares with the server.  To be
# included by Makefile.

test_setupplan_SRCS := $(addprefix ../../src/bin/pg_pcache/,setupfile.c setupmachine.c setupplan.c)
$(OUT)/test_setupplan: override CPPFLAGS += -I../../src/bin/pg_pcache -I$(PG)/src/interfaces/libpq
