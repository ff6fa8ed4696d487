
# Copyright (c) 2026, the persistent-cache developers

=pod

=head1 NAME

Walk::Damage - what befalls files: WAL, relations, the pool

=head1 DESCRIPTION

The pool's layout is that of storage/pcache_layout.h.  Page contents in a pool
of a server that is down are left alone: nothing protects them, as the README says.

=cut

package Walk::Damage;

use strict;
use warnings FATAL => 'all';

use Exporter 'import';

use LibraryPool;
use Walk::Util;

our @EXPORT = qw(wal_segments damage_wal damage_relation repair_relation damage_pool wild_store entry_slots);

use constant { BLCKSZ => 8192, LEDGER => 2 * 1024 * 1024 };

sub patch
{
	my ($file, $offset, $bytes) = @_;
	open(my $fh, '+<:raw', $file) or die "$file: $!";
	sysseek($fh, $offset, 0);
	(syswrite($fh, $bytes) // -1) == length $bytes or die "$file: $!";
	close $fh or die "$file: $!";
	return;
}

# As patch(), for a file that others may have a link to.
sub patch_copy
{
	my ($file, $offset, $bytes) = @_;
	my $text = slurp($file);
	substr($text, $offset, length $bytes, $bytes);
	spew("$file.new", $text);
	rename("$file.new", $file) or die "$file: $!";
	return;
}

# The segments from the redo point to the last one that has a page, in order.
sub wal_segments
{
	my ($c) = @_;
	my $redo = $c->control("Latest checkpoint's REDO WAL file");
	my @names;
	opendir(my $dh, "$c->{data}/pg_wal") or die;
	for my $name (sort grep { /^[0-9A-F]{24}$/ } readdir $dh)
	{
		next if $redo && substr($name, 8) lt substr($redo, 8);
		open(my $fh, '<:raw', "$c->{data}/pg_wal/$name") or next;
		read($fh, my $head, 16);

		# one that was recycled has an address of an earlier segment
		my ($address) = unpack('x8 Q', $head);
		my $size = -s $fh;
		my $number = hex(substr($name, 8, 8)) * (2**32 / $size) + hex(substr($name, 16));
		push @names, $name if $address == $number * $size;
	}
	closedir $dh;
	return @names;
}

# One of them; at, within: fractions.  how: flip, zero, remove.
sub damage_wal
{
	my ($c, $at, $within, $how, $archive) = @_;
	my @names = wal_segments($c) or return;
	my $name = $names[ int($at * @names) ];
	for my $file ("$c->{data}/pg_wal/$name", $archive ? "$c->{walk}{archive}/$name" : ())
	{
		next if !-e $file;
		if ($how eq 'remove') { unlink $file; next }
		my $pages = (-s $file) / BLCKSZ;
		my $offset = int($within * $pages) * BLCKSZ;
		patch_copy($file, $offset, $how eq 'zero' ? "\0" x BLCKSZ : "\xA5" x 512);
	}
	return "$name of $names[0] to $names[-1]";
}

# Pages of the table that nobody changes.  header: what any server refuses;
# data: what checksums find.
sub damage_relation
{
	my ($c, $at, $kind) = @_;
	my $file = "$c->{data}/$c->{walk}{victim_path}";
	my $pages = (-s $file) / BLCKSZ;
	my $block = int($at * $pages);
	open(my $fh, '<:raw', $file) or die "$file: $!";
	seek($fh, $block * BLCKSZ, 0);
	read($fh, my $page, BLCKSZ);
	close $fh;
	$c->{damaged} //= { file => $c->{walk}{victim_path}, pages => {} };
	$c->{damaged}{pages}{$block} //= $page;
	$kind eq 'header'
	  ? patch($file, $block * BLCKSZ + 12, "\xFF" x 8)
	  : patch($file, $block * BLCKSZ + BLCKSZ - 300, join('', map { chr(ord($_) ^ 1) } split //, substr($page, BLCKSZ - 300, 20)));
	return "block $block";
}

sub repair_relation
{
	my ($c) = @_;
	my $pages = $c->{damaged}{pages};
	patch("$c->{data}/$c->{damaged}{file}", $_ * BLCKSZ, $pages->{$_}) for keys %$pages;
	delete $c->{damaged};
	return;
}

# Random bytes into what the pool says of itself; or blocks, and perhaps entries,
# are cut off; or a part of them has lost its memory.
sub damage_pool
{
	my ($c, $where, $r) = @_;
	my $pool = "$c->{pool}/pool";
	my $slots = unpack('Q', slurp_at($pool, 112, 8));
	my $from = LEDGER + int($r->real * (-s $pool) / 4096) * 4096;
	return truncate($pool, $from < -s $pool ? $from : LEDGER) if $where eq 'cut';
	return must_run($c->{out}, 'fallocate', '--punch-hole', '--offset', $from, '--length', 65536, $pool) if $where eq 'hole';
	my ($offset, $length) = @{
		{ superblock => [ 0, 4096 ], both => [ 0, 8192 ], copy => [ 4096, 4096 ], sighting => [ 8192 + 256, 256 ],
			errors => [ 12288, 4096 ], entries => [ LEDGER, 64 * $slots ] }->{$where} };
	my $n = $where eq 'entries' ? 20 : $where eq 'both' ? 40 : 3;
	for (1 .. $n)
	{
		my $at = $offset + int($r->real * $length);
		patch($pool, $at, chr(ord(slurp_at($pool, $at, 1)) ^ 1 << int($r->real * 8)));
	}
	return;
}

sub slurp_at
{
	my ($file, $offset, $length) = @_;
	open(my $fh, '<:raw', $file) or die "$file: $!";
	sysseek($fh, $offset, 0);
	(sysread($fh, my $bytes, $length) // -1) == $length or die "$file: cannot read $length bytes at $offset";
	close $fh;
	return $bytes;
}

# Slots with an entry, whose page there now has the LSN that the entry had when it was
# stored, if it has one at all: first those, then the others.
sub entry_slots
{
	my ($pool) = @_;
	my $blocks = unpack('Q', slurp_at($pool, 104, 8));
	my $slots = unpack('Q', slurp_at($pool, 112, 8));
	my $all = slurp_at($pool, LEDGER, 64 * $slots);
	my (@same, @others);
	for my $slot (0 .. $slots - 1)
	{
		my ($seq, $lsn, $version) = unpack('QQ x32 S', substr($all, 64 * $slot, 50));
		my ($hi, $lo) = unpack('LL', slurp_at($pool, $blocks + BLCKSZ * $slot, 8));
		push @{ $version != 0 && $lsn == ($hi << 32 | $lo) ? \@same : \@others }, $slot;
	}
	return (\@same, \@others);
}

# Bytes of a user table's page in the pool's memory, as a wild pointer would
# have it; the page is one that the pool believes.  Returns where.
sub wild_store
{
	my ($c, $at, $offset) = @_;
	my $pool = "$c->{pool}/pool";
	return 'no pool' if !-e $pool;
	my $blocks = unpack('Q', slurp_at($pool, 104, 8));
	my @d = grep { $_->{fork} == 0 && $_->{rel} >= 16384 } present_pages($pool);
	return 'no page' if !@d;
	my %wanted = map { $_ => 1 } @{ $c->{walk}{heaps} // [] };
	my @heaps = grep { $wanted{ $_->{rel} } } @d;
	@d = @heaps if @heaps;
	my $d = $d[ int($at * @d) ];
	my $start = $blocks + BLCKSZ * $d->{slot};
	my $upper = unpack('S', slurp_at($pool, $start + 14, 2));
	return 'an empty page' if $upper >= BLCKSZ - 64 || $upper < 24;

	# beyond the tuple header: row contents
	my $where = $start + BLCKSZ - 40 + int($offset * 32);
	patch($pool, $where, chr(ord(slurp_at($pool, $where, 1)) ^ 1));
	return sprintf('slot %d, relation %d block %d', $d->{slot}, $d->{rel}, $d->{block});
}

1;
