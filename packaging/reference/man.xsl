<?xml version="1.0" encoding="utf-8"?>
<xsl:stylesheet xmlns:xsl="http://www.w3.org/1999/XSL/Transform" version="1.0">
<xsl:import href="http://docbook.sourceforge.net/release/xsl/current/manpages/docbook.xsl"/>
<xsl:include href="elsewhere.xsl"/>

<!-- The same choices as in PostgreSQL's stylesheet-man.xsl -->
<xsl:param name="man.authors.section.enabled">0</xsl:param>
<xsl:param name="man.copyright.section.enabled">0</xsl:param>
<xsl:param name="man.endnotes.are.numbered">0</xsl:param>
<xsl:param name="man.endnotes.list.enabled">0</xsl:param>
<xsl:param name="man.output.quietly">1</xsl:param>
<xsl:param name="refentry.meta.get.quietly">1</xsl:param>
<xsl:param name="variablelist.term.break.after">1</xsl:param>
<xsl:param name="variablelist.term.separator"/>
<xsl:param name="man.string.subst.map.local.post">
  <substitution oldstring="\'" newstring="\(aq"></substitution>
</xsl:param>
<xsl:template match="indexterm"/>

<!-- The heading of each page -->
<xsl:param name="version"/>
<xsl:param name="date"/>
<xsl:template name="get.refentry.source">
  <xsl:value-of select="concat('pg_pcache ', $version)"/>
</xsl:template>
<xsl:template name="get.refentry.date">
  <xsl:value-of select="$date"/>
</xsl:template>
<xsl:template name="get.refentry.manual">The persistent cache</xsl:template>

<!-- The page is called as the extension's section is. -->
<xsl:template match="xref[@linkend = 'pgpcache']" priority="20">the reference of the extension pg_pcache</xsl:template>

</xsl:stylesheet>
