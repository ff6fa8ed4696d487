# test_warmplan.mk
#
# Made of sources of pg_pcache, beside what it shares with the server.  To be
# included by Makefile.

PG_PCACHE := ../../src/bin/pg_pcache
test_warmplan_SRCS := $(PG_PCACHE)/pagelist.c $(PG_PCACHE)/warmplan.c
$(OUT)/test_warmplan: override CPPFLAGS += -I$(PG_PCACHE)
